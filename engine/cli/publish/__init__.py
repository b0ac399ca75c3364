"""Publishes detections from a file: read and checked line by line, paced, sent in batches.

Memory is bounded whatever the file's size; nothing after the first fault is published.
"""
