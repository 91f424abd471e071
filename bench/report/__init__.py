"""Benchmark report: figures of results, one page with all of them, and the tables of the repository's pages.

`figures.py` draws with matplotlib, `page.py` writes the page, `readme.py` the tables; `gather.py` reads the files.
"""
