"""``python -m waysout`` is the command line."""

from waysout.cli.main import main

if __name__ == "__main__":
    main()
