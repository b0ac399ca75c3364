"""The same job as a competent user writes it, without the product. See ../README.md.

Each file runs by itself, in any virtual environment that has requirements.txt installed. They may
lose notifications where the process dies between the claim in Redis and the acknowledgement.
"""
