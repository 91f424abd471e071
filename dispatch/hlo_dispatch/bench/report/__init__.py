"""The report: figures of results, a page that holds them all, and the README's table.

`figures.py` draws with matplotlib, `page.py` writes the page, `readme.py` the table; `gather.py` reads the files.
"""
