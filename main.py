"""Train and evaluate: ``python main.py model=lkf loss=mixture``; see configs/ for every key."""

from lkf_plugin.cli import main

if __name__ == "__main__":
    main()
