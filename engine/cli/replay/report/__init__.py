"""The outcome as one HTML file: plots and tables, which need nothing from elsewhere.

`uplot/` is the charting library as its authors publish it, with its licence; `make charts` renews
it.
"""
