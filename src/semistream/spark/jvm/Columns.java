package semistream;

import org.apache.spark.unsafe.Platform;

/** Where the columns that are asked for lie in a page, by the numbers of their buffers among those that are known. */
final class Columns {
    final int count; // of those that come out, which are the first
    final int key; // the column that holds the key, where codes are hashes of it
    private final int[] validity, values, bytes; // bytes: of texts, whose values are offsets
    private final int[] wide; // 1 where offsets have 64 bits
    private final int[] converted; // 1: unsigned, of half the width; else times so much, or by minus so much

    Columns(Description told, int first) {
        validity = told.numbers("validity", first);
        values = told.numbers("values", first);
        bytes = told.numbers("bytes", first);
        wide = told.numbers("wide");
        converted = told.numbers("converted");
        count = (int) told.number("fields");
        key = (int) told.number("key");
    }

    boolean isNull(int column, long page, int[] known, int row) {
        int offset = known[validity[column]];
        return offset != 0 && (Platform.getByte(null, page + offset + (row >> 3)) >> (row & 7) & 1) == 0;
    }

    /** Gives where a column's values begin. */
    long values(int column, long page, int[] known) {
        return page + known[values[column]];
    }

    /** Whether values have no sign, and are given in a type of twice their width. */
    boolean isUnsigned(int column) {
        return converted[column] == 1;
    }

    /** Gives a time in the unit that Spark has; what is finer is cut. */
    long inUnit(int column, long value) {
        int factor = converted[column];
        return factor == 0 ? value : factor > 0 ? value * factor : value / -factor;
    }

    long start(int column, long page, int[] known, int row) {
        return page + known[bytes[column]] + bound(column, values(column, page, known), row);
    }

    long end(int column, long page, int[] known, int row) {
        return start(column, page, known, row + 1);
    }

    private long bound(int column, long offsets, int row) {
        return wide[column] == 1 ? Platform.getLong(null, offsets + 8L * row) : Platform.getInt(null, offsets + 4L * row);
    }

    /**
     * Writes where these buffers of an encapsulated Arrow record batch begin, 0 for empty ones.
     *
     * <p>By Message.fbs of the Arrow format field 2 of a Message is its header, field 2 of a RecordBatch its buffers:
     * pairs of offset and length.
     */
    static void locate(long message, int[] numbers, int[] out, int first) {
        int body = 8 + Platform.getInt(null, message + 4);
        long header = follow(field(follow(message + 8), 2));
        long entries = follow(field(header, 2)) + 4;
        for (int i = 0; i < numbers.length; i++) {
            long entry = entries + 16L * numbers[i];
            boolean there = Platform.getLong(null, entry + 8) > 0;
            out[first + i] = there ? body + (int) Platform.getLong(null, entry) : 0;
        }
    }

    private static long follow(long address) {
        return address + Platform.getInt(null, address);
    }

    /** Gives the address of a field of a FlatBuffers table; those that are asked for are always there. */
    private static long field(long table, int number) {
        return table + Platform.getShort(null, table - Platform.getInt(null, table) + 4 + 2 * number);
    }
}
