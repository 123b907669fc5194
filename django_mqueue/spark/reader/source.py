"""The data source behind ``format("mqueue")``. Each of Spark's Python processes creates its own objects.

Some methods import a module that not all of these processes need.

Filters are not pushed down: in PySpark 4.1 to 4.3, the filters of one query would also apply to the next query on the
same DataFrame. Topics and ranges are options, fixed at ``load()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..connecting import connected
from ..writer.write_options import WriteOptions, check_mode, write_options
from .columns import check_schema, schema_of
from .options import read_options
from .range_reader import RangeReader

if TYPE_CHECKING:
    from ..streams.stream_reader import StreamReader
    from ..writer.sink import StreamWriter, Writer


class MQueueDataSource(DataSource):
    """The log of topics, their dead letters, or groups' delivery state; see docs/reference/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "mqueue"

    def schema(self) -> StructType:
        return schema_of(read_options(dict(self.options)))

    def reader(self, schema: StructType) -> Reader:
        options = read_options(dict(self.options), streaming=False)
        check_schema(schema, options)
        return Reader(schema, options)

    def streamReader(self, schema: StructType) -> StreamReader:
        from ..streams.stream_reader import StreamReader

        options = read_options(dict(self.options), streaming=True)
        check_schema(schema, options)
        return StreamReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        from ..writer.sink import Writer

        return Writer(self._writing(schema, overwrite, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from ..writer.sink import StreamWriter

        return StreamWriter(self._writing(schema, overwrite, streaming=True))

    def _writing(self, schema: StructType, overwrite: bool, *, streaming: bool) -> WriteOptions:
        from ..writer.sink import check_columns

        check_mode(overwrite)
        options = write_options(dict(self.options), streaming=streaming)
        check_columns(schema, options)
        return options


class Reader(RangeReader, DataSourceReader):
    """Reads a batch. The driver plans the batch each time that Spark computes something from it."""

    def partitions(self) -> list[InputPartition]:
        from .planning import batch

        with connected(self.options.connecting) as using:
            return [InputPartition(each) for each in batch(using, self.options)]
