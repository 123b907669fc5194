"""The verbs of the command, one module each. Each module has a ``VERB``.

They import the functions of ``django_mqueue.spark``. None of them imports PySpark before it runs.
"""
