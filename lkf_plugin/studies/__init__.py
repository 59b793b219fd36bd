"""The synthetic studies: training on corpora whose optimum is known, and what was learned.

``scripts/synthetic.py`` is their command line and docs/synthetic.md their table.
"""
