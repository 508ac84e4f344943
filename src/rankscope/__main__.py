"""`python -m rankscope`: the command line, for tools that start modules, such as torchrun."""

from rankscope.cli import main

if __name__ == "__main__":
    main()
