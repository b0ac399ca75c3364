"""The outcome as one HTML file: plots and tables, which need nothing from elsewhere.

The charting library is the console's (api/console/vendor), as its authors publish it.
"""
