package semistream;

import java.math.BigInteger;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A row of the master where it lies: a column that nobody asks for is not read.
 *
 * <p>It is a JoinedRow only to have the getters of types that a page of ours does not hold, which differ between
 * Spark's versions.
 */
final class MasterRow extends JoinedRow {
    private final Table table; // keeps the page mapped
    private final Columns columns;
    private final long page;
    private final int[] known;
    private final int row;

    MasterRow(Table table, long page, int[] known, int row) {
        this.table = table;
        this.columns = table.columns;
        this.page = page;
        this.known = known;
        this.row = row;
    }

    public int numFields() {
        return columns.count;
    }

    public boolean isNullAt(int i) {
        return columns.isNull(i, page, known, row);
    }

    public boolean anyNull() {
        for (int i = 0; i < columns.count; i++) {
            if (isNullAt(i)) {
                return true;
            }
        }
        return false;
    }

    public boolean getBoolean(int i) {
        return (Platform.getByte(null, columns.values(i, page, known) + (row >> 3)) >> (row & 7) & 1) == 1;
    }

    public byte getByte(int i) {
        return Platform.getByte(null, columns.values(i, page, known) + row);
    }

    public short getShort(int i) {
        long values = columns.values(i, page, known);
        return columns.isUnsigned(i)
                ? (short) (Platform.getByte(null, values + row) & 0xFF)
                : Platform.getShort(null, values + 2L * row);
    }

    public int getInt(int i) {
        long values = columns.values(i, page, known);
        return columns.isUnsigned(i)
                ? Platform.getShort(null, values + 2L * row) & 0xFFFF
                : Platform.getInt(null, values + 4L * row);
    }

    public long getLong(int i) {
        long values = columns.values(i, page, known);
        return columns.isUnsigned(i)
                ? Platform.getInt(null, values + 4L * row) & 0xFFFFFFFFL
                : columns.inUnit(i, Platform.getLong(null, values + 8L * row));
    }

    public float getFloat(int i) {
        return Platform.getFloat(null, columns.values(i, page, known) + 4L * row);
    }

    public double getDouble(int i) {
        return Platform.getDouble(null, columns.values(i, page, known) + 8L * row);
    }

    public Decimal getDecimal(int i, int precision, int scale) {
        long at = columns.values(i, page, known) + 16L * row; // little endian, of 128 bits
        if (precision <= Decimal.MAX_LONG_DIGITS()) {
            return Decimal.createUnsafe(Platform.getLong(null, at), precision, scale);
        }
        byte[] bytes = new byte[16];
        for (int b = 0; b < 16; b++) {
            bytes[15 - b] = Platform.getByte(null, at + b);
        }
        return Decimal.apply(new java.math.BigDecimal(new BigInteger(bytes), scale), precision, scale);
    }

    public UTF8String getUTF8String(int i) {
        long start = columns.start(i, page, known, row);
        return UTF8String.fromAddress(null, start, (int) (columns.end(i, page, known, row) - start));
    }

    public byte[] getBinary(int i) {
        long start = columns.start(i, page, known, row);
        byte[] bytes = new byte[(int) (columns.end(i, page, known, row) - start)];
        Platform.copyMemory(null, start, bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
        return bytes;
    }

    public Object get(int i, DataType type) {
        return InternalRow.getAccessor(type, true).apply(this, i);
    }

    public InternalRow copy() {
        return this; // pages do not change
    }

    public boolean equals(Object other) {
        return this == other;
    }

    public int hashCode() {
        return Long.hashCode(page + row);
    }

    public String toString() {
        return "row " + row + " of a page of " + table;
    }
}
