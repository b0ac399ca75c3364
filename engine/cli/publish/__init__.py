"""Detections from a file to Kafka: read and checked a line at a time, paced, published in batches.

Memory is bounded whatever the file's size; nothing is published behind the first fault.
"""
