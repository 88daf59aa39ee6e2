package semistream;

import java.util.function.BiFunction;
import org.apache.spark.SparkContext;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Asks the driver's Python which snapshot a micro-batch reads (`lookup.py`).
 *
 * <p>In a plan it stands for a constant, which Spark computes when it plans the micro-batch: so all of its tasks have
 * the same answer.
 */
public final class Snapshots {
    private final BiFunction ask;

    public Snapshots(BiFunction ask) {
        this.ask = ask;
    }

    public UTF8String current() {
        SparkContext context = SparkContext.getOrCreate();
        String query = context.getLocalProperty("sql.streaming.queryId");
        String batch = context.getLocalProperty("streaming.sql.batchId");
        return UTF8String.fromString((String) ask.apply(query, batch));
    }

    public String toString() {
        return "semistream snapshots";
    }
}
