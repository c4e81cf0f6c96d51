"""Runs one query of Spark Structured Streaming over a folder of files to its end: into nothing, or into CSV.

Argument: a JSON file with the plan that `engines.py` writes (streams, query, mode, settings, checkpoint, csv).
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    builder = SparkSession.builder.appName("peer").master(plan["master"])
    for key, value in plan["settings"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for stream in plan["streams"]:
        rows = (
            spark.readStream.schema(stream["columns"])
            .option("maxFilesPerTrigger", plan["files_per_batch"])
            .format(plan["format"])
            .load(stream["location"])
        )
        rows.withWatermark("date_time", "4 seconds").createOrReplaceTempView(stream["name"])
    try:
        run(spark, plan)
    finally:
        spark.stop()


def run(spark: SparkSession, plan: dict) -> None:
    writer = (
        spark.sql(plan["query"])
        .writeStream.outputMode(plan["mode"])
        .option("checkpointLocation", plan["checkpoint"])
        .trigger(availableNow=True)
    )
    if not plan["csv"]:
        writer.format("noop").start().awaitTermination()
        return
    changes = plan["csv"] + ".changes"

    def keep(rows: DataFrame, batch: int) -> None:
        rows.selectExpr("*", f"{batch} AS batch").write.mode("append").parquet(changes)

    writer.foreachBatch(keep).start().awaitTermination()
    rows = spark.read.parquet(changes)
    if plan["keys"]:
        # Each batch gives the new row of every key that it touched.
        keys = ", ".join(plan["keys"])
        rows = rows.selectExpr("*", f"row_number() OVER (PARTITION BY {keys} ORDER BY batch DESC) AS newest")
        rows = rows.where("newest = 1").drop("newest")
    rows = rows.drop("batch").selectExpr("*", "1 AS weight")
    rows.write.option("header", True).option("timestampFormat", "yyyy-MM-dd HH:mm:ss.SSS").csv(plan["csv"])


if __name__ == "__main__":
    main()
