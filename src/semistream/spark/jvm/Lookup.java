package semistream;

import java.io.Serializable;
import java.lang.ref.SoftReference;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What a query's plan calls for every row of the stream: where its master row is, and that row.
 *
 * <p>These are two calls, for between them Spark counts rows, and copies what it counts: so it copies a number.
 *
 * <p>A snapshot is named by its description (`description.py`), the same text in all tasks of a micro-batch. What
 * tasks know of its pages stays with the executor as long as it is the last that some enrichment has asked for.
 */
public final class Lookup implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final Map LAST = new HashMap(); // enrichment -> description
    private static final Map OPEN = new HashMap(); // description -> SoftReference of its Table

    private final String enrichment;
    private transient UTF8String snapshot;
    private transient Table table;

    public Lookup(String enrichment) {
        this.enrichment = enrichment;
    }

    /** Gives the place of a key's row, negative if there is none. */
    public long find(UTF8String snapshot, long key) {
        return of(snapshot).find(key);
    }

    public long find(UTF8String snapshot, UTF8String key) {
        return of(snapshot).find(key.getBaseObject(), key.getBaseOffset(), key.numBytes());
    }

    public long find(UTF8String snapshot, byte[] key) {
        return of(snapshot).find(key, Platform.BYTE_ARRAY_OFFSET, key.length);
    }

    /** Gives the row at a place that was found, null if there is none. */
    public InternalRow row(UTF8String snapshot, long place) {
        return of(snapshot).row(place);
    }

    /** A task has one object for the text, so that it is enough to look whether it is the same. */
    private Table of(UTF8String wanted) {
        if (wanted != snapshot) {
            table = opened(enrichment, wanted.toString());
            snapshot = wanted;
        }
        return table;
    }

    private static synchronized Table opened(String enrichment, String description) {
        LAST.put(enrichment, description);
        OPEN.keySet().retainAll(LAST.values());
        SoftReference known = (SoftReference) OPEN.get(description);
        Table table = known == null ? null : (Table) known.get();
        if (table == null) {
            table = new Table(description);
            OPEN.put(description, new SoftReference(table));
        }
        return table;
    }

    public String toString() {
        return "semistream " + enrichment;
    }
}
