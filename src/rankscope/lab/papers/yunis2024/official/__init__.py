"""The authors' own evaluation of a VGG-16 beside ours: tables of the paper's page, and a figure."""
