"""Deletion of what no group needs: old messages, the state of removed groups, expired reply boxes.

It works in small transactions, and finds its rows by index.
It imports ``store`` and lower layers.
"""
