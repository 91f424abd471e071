"""The report: figures of results, a page that holds them all, and the tables of the repository's pages.

`figures.py` draws with matplotlib, `page.py` writes the page, `readme.py` the tables; `gather.py` reads the files.
"""
