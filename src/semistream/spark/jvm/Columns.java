package semistream;

import org.apache.spark.unsafe.Platform;

/** Where the columns that are asked for lie in a page, by the numbers of their buffers among those that are known. */
final class Columns {
    final int count; // of those that come out, which are the first
    final int key; // the column that holds the key, where codes are hashes of it
    private final int[] validity, values, bytes; // bytes: of texts, whose values are offsets
    private final int[] wide; // 1 where offsets have 64 bits
    private final int[] bits; // of a value; 0 for texts
    private final int[] converted; // 1: unsigned, of half the width; else times so much, or by minus so much

    Columns(Description told, int first) {
        validity = told.numbers("validity", first);
        values = told.numbers("values", first);
        bytes = told.numbers("bytes", first);
        wide = told.numbers("wide");
        bits = told.numbers("bits");
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
     * <p>By Message.fbs of the Arrow format field 2 of a Message is its header; fields 0, 2 and 3 of a RecordBatch are
     * its rows, its buffers (pairs of offset and length) and its compression.
     *
     * @return whether the batch has so many rows, and all that may be read of them lies within its bytes
     */
    boolean locate(long page, int length, int rows, int[] numbers, int[] out, int first) {
        int size = length < 16 ? 0 : Platform.getInt(null, page + 4);
        if (size < 8 || size > length - 8) {
            return false;
        }
        long low = page + 8, body = low + size;
        long message = table(low, low, body);
        long batch = message == 0 ? 0 : table(field(message, 2, 4, body), low, body);
        long count = batch == 0 ? 0 : field(batch, 0, 8, body), vector = batch == 0 ? 0 : field(batch, 2, 4, body);
        if (count == 0 || vector == 0 || Platform.getLong(null, count) != rows || field(batch, 3, 4, body) != 0) {
            return false;
        }
        long entries = vector + Platform.getInt(null, vector) + 4;
        if (entries < low || entries > body || Platform.getInt(null, entries - 4) > (body - entries) / 16) {
            return false;
        }
        long room = page + length - body;
        long[] sizes = new long[out.length];
        for (int i = 0; i < numbers.length; i++) {
            long entry = entries + 16L * numbers[i];
            if (numbers[i] >= Platform.getInt(null, entries - 4)) {
                return false;
            }
            long start = Platform.getLong(null, entry), held = Platform.getLong(null, entry + 8);
            if (start < 0 || start > room || held < 0 || held > room - start) {
                return false;
            }
            out[first + i] = held > 0 ? (int) (body - page + start) : 0;
            sizes[first + i] = held;
        }
        return sizes[first] / 8 >= rows && columnsFit(page, rows, out, sizes);
    }

    private boolean columnsFit(long page, int rows, int[] known, long[] sizes) {
        for (int i = 0; i < validity.length; i++) {
            long valid = sizes[validity[i]], held = sizes[values[i]];
            if (valid > 0 && valid * 8 < rows) {
                return false;
            }
            if (bits[i] > 0 ? held * 8 / bits[i] < rows : !textsFit(i, page, rows, known, held, sizes[bytes[i]])) {
                return false;
            }
        }
        return true;
    }

    /** Whether offsets of texts ascend, and end within their bytes. */
    private boolean textsFit(int column, long page, int rows, int[] known, long held, long most) {
        if (held / (wide[column] == 1 ? 8 : 4) <= rows) {
            return false;
        }
        long offsets = values(column, page, known), last = bound(column, offsets, 0);
        boolean ascending = last >= 0;
        for (int row = 1; row <= rows; row++) {
            long next = bound(column, offsets, row);
            ascending &= next >= last;
            last = next;
        }
        return ascending && last <= most;
    }

    /** Gives the FlatBuffers table that an offset refers to, 0 where it is not within the bounds. */
    private static long table(long address, long low, long high) {
        if (address < low || address > high - 4) {
            return 0;
        }
        long table = address + Platform.getInt(null, address);
        if (table < low || table > high - 4) {
            return 0;
        }
        long lines = table - Platform.getInt(null, table);
        return lines < low || lines > high - 4 || lines + unsigned(lines) > high ? 0 : table;
    }

    /** Gives the address of a field of a FlatBuffers table, 0 where it is not there or not within the bounds. */
    private static long field(long table, int number, int size, long high) {
        long lines = table - Platform.getInt(null, table);
        int offset = 6 + 2 * number > unsigned(lines) ? 0 : unsigned(lines + 4 + 2 * number);
        return offset == 0 || table + offset + size > high ? 0 : table + offset;
    }

    private static int unsigned(long address) {
        return Platform.getShort(null, address) & 0xFFFF;
    }
}
