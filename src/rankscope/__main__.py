"""`python -m rankscope`: the command line, also for what starts modules, such as torchrun."""

from rankscope.cli import main

if __name__ == "__main__":
    main()
