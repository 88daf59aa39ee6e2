package semistream;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

/**
 * A snapshot of a master table with unique keys, mapped into memory.
 *
 * <p>A page is verified when it is first met; what is known of it then is an array: its rows, the even step of its
 * codes or 0, and where its buffers begin, 0 for those that are not there.
 */
final class Table {
    private static final long SEGMENT = 1L << 30; // a mapping has 2 GB at most
    private static final int BLOCK = 4096; // of the disk, to whole ones of which pages are padded
    private static final long ABSENT = -1;
    private static final int ROWS = 0, STEP = 1, HEAD = 2;

    final Columns columns;
    private final String path;
    private final int[] buffers;
    private final long[] seed;
    private final MappedByteBuffer[] mapped; // as long as these are there, so are the addresses
    private final long[] codes; // the first of each page
    private final long[] starts;
    private final long lengths, rows, checksums; // where the index has them
    private final double low, scale; // pages for each code, if codes are spread evenly
    private final AtomicReferenceArray pages;

    Table(String description) {
        Description told = new Description(description);
        path = told.text("pages");
        buffers = told.numbers("buffers");
        String[] words = told.text("seed").split(",");
        seed = new long[] {Long.parseLong(words[0]), Long.parseLong(words[1])};
        columns = new Columns(told, HEAD);
        int count = (int) told.number("page_count");
        MappedByteBuffer index = map(told.text("index"), 0, told.number("index_bytes"));
        long at = address(index);
        if (Hash.ofPage(at, (int) told.number("index_bytes")) != Long.parseUnsignedLong(told.text("index_checksum"))) {
            throw damaged(told.text("index") + " is damaged, its checksum differs");
        }
        mapped = segments(told.number("pages_bytes"), told.number("largest_page"), index);
        lengths = at + told.number("length");
        rows = at + told.number("rows");
        checksums = at + told.number("checksum");
        codes = new long[count];
        starts = new long[count];
        Platform.copyMemory(null, at + told.number("code"), codes, Platform.LONG_ARRAY_OFFSET, 8L * count);
        Platform.copyMemory(null, at + told.number("offset"), starts, Platform.LONG_ARRAY_OFFSET, 8L * count);
        if (!indexFits(told.number("pages_bytes"), told.number("largest_page"))) {
            throw damaged(told.text("index") + " is damaged, its lines do not follow from each other");
        }
        for (int i = 0; i < count; i++) {
            starts[i] = address(mapped[(int) (starts[i] / SEGMENT)]) + starts[i] % SEGMENT;
        }
        low = count == 0 ? 0 : (double) codes[0];
        scale = count == 0 ? 0 : (count - 1) / Math.max(codes[count - 1] - low, 1.0);
        pages = new AtomicReferenceArray(count);
    }

    private static IllegalStateException damaged(String what) {
        return new IllegalStateException(what + "; build the master again");
    }

    /** Whether pages follow one another in order, and each lies in the pieces that are mapped. */
    private boolean indexFits(long size, long largest) {
        long end = 0;
        for (int i = 0; i < codes.length; i++) {
            int length = Platform.getInt(null, lengths + 4L * i), count = Platform.getInt(null, rows + 4L * i);
            if (starts[i] != end || length <= 0 || padded(length) > largest || count <= 0 || count > length / 8
                    || i > 0 && codes[i] <= codes[i - 1]) {
                return false;
            }
            end += padded(length);
        }
        return end == size;
    }

    private static long padded(int length) {
        return ((long) length + BLOCK - 1) / BLOCK * BLOCK;
    }

    /** Maps the pages in pieces that overlap by a page, so that each page lies in one whole. */
    private MappedByteBuffer[] segments(long size, long largest, MappedByteBuffer index) {
        int count = (int) ((size + SEGMENT - 1) / SEGMENT);
        MappedByteBuffer[] found = new MappedByteBuffer[count + 1];
        for (int i = 0; i < count; i++) {
            found[i] = map(path, i * SEGMENT, Math.min(SEGMENT + largest, size - i * SEGMENT));
        }
        found[count] = index;
        return found;
    }

    private static MappedByteBuffer map(String path, long start, long length) {
        try {
            RandomAccessFile file = new RandomAccessFile(path, "r");
            try {
                if (file.length() < start + length) { // to read behind the end of a mapped file is fatal
                    throw new IOException(path + " is cut off at byte " + file.length() + "; build the master again");
                }
                return file.getChannel().map(FileChannel.MapMode.READ_ONLY, start, length);
            } finally {
                file.close();
            }
        } catch (FileNotFoundException error) {
            throw new IllegalStateException(path + " is not there, or cannot be read by this executor: the snapshot may be"
                    + " gone, for it is held for a day; call enrich again. Or put the master on a path that all executors"
                    + " share.", error);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static long address(MappedByteBuffer buffer) {
        return ((sun.nio.ch.DirectBuffer) buffer).address();
    }

    /** Gives the place of the row with this code, where codes are keys. */
    long find(long code) {
        int page = pageOf(code);
        if (page < 0) {
            return ABSENT;
        }
        int[] known = known(page);
        return place(page, known[STEP] > 0 ? inSteps(code, page, known) : search(code, page, known));
    }

    /** Gives the place of the row with these bytes for a key; several keys may have one code. */
    long find(Object key, long offset, int length) {
        long code = Hash.ofBytes(seed, key, offset, length);
        int page = pageOf(code);
        if (page < 0) {
            return ABSENT;
        }
        int[] known = known(page);
        long start = starts[page], base = start + known[HEAD];
        int row = search(code, page, known);
        while (row >= 0 && row < known[ROWS] && Platform.getLong(null, base + 8L * row) == code) {
            long text = columns.start(columns.key, start, known, row);
            if (columns.end(columns.key, start, known, row) - text == length
                    && ByteArrayMethods.arrayEquals(key, offset, null, text, length)) {
                return place(page, row);
            }
            row++;
        }
        return ABSENT;
    }

    private static long place(int page, int row) {
        return row < 0 ? ABSENT : (long) page << 32 | row;
    }

    InternalRow row(long place) {
        if (place < 0) {
            return null;
        }
        int page = (int) (place >>> 32);
        return new MasterRow(this, starts[page], known(page), (int) place);
    }

    /** Gives the last page that begins at or before a code: a guess first, right for even codes; -1 if none does. */
    private int pageOf(long code) {
        int last = codes.length - 1;
        if (last < 0 || code < codes[0]) {
            return -1;
        }
        int guess = (int) Math.min(Math.max((code - low) * scale, 0), last);
        if (codes[guess] > code) { // rounding may miss by one
            guess--;
        } else if (guess < last && codes[guess + 1] <= code) {
            guess++;
        }
        if (codes[guess] <= code && (guess == last || code < codes[guess + 1])) {
            return guess;
        }
        int page = java.util.Arrays.binarySearch(codes, code);
        return page >= 0 ? page : -page - 2;
    }

    private int inSteps(long code, int page, int[] known) {
        long above = code - codes[page]; // as an unsigned number it may be more than a signed one holds
        long place = known[STEP] == 1 ? above : Long.divideUnsigned(above, known[STEP]);
        return Long.compareUnsigned(place, known[ROWS]) < 0 && place * known[STEP] == above ? (int) place : -1;
    }

    /** Gives the first row of a page with this code, -1 if there is none, from near where it should stand. */
    private int search(long code, int page, int[] known) {
        long base = starts[page] + known[HEAD];
        int count = known[ROWS], guess = inProportion(code, page, count), low = 0, high = count, step = 1;
        if (Platform.getLong(null, base + 8L * guess) < code) {
            low = guess + 1;
            while (low + step < count && Platform.getLong(null, base + 8L * (low + step)) < code) {
                low += step + 1;
                step <<= 1;
            }
            high = Math.min(count, low + step);
        } else {
            high = guess;
            while (high - step >= 0 && Platform.getLong(null, base + 8L * (high - step)) >= code) {
                high -= step;
                step <<= 1;
            }
            low = Math.max(0, high - step);
        }
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (Platform.getLong(null, base + 8L * middle) < code) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low < count && Platform.getLong(null, base + 8L * low) == code ? low : -1;
    }

    private int inProportion(long code, int page, int count) {
        double first = codes[page];
        double width = page + 1 < codes.length ? codes[page + 1] - first : count;
        double share = width <= 0 ? 0 : Math.min(Math.max((code - first) / width, 0), 1);
        return Math.min((int) (share * count), count - 1);
    }

    private int[] known(int page) {
        int[] found = (int[]) pages.get(page);
        return found != null ? found : read(page);
    }

    /** Verifies a page and notes where its parts are; two tasks may do so at once, and note the same. */
    private int[] read(int page) {
        long start = starts[page];
        int length = Platform.getInt(null, lengths + 4L * page);
        if (Hash.ofPage(start, (int) padded(length)) != Platform.getLong(null, checksums + 8L * page)) {
            throw damaged(path + ": page " + page + " is damaged, its checksum differs");
        }
        int[] found = new int[HEAD + buffers.length];
        found[ROWS] = Platform.getInt(null, rows + 4L * page);
        if (!columns.locate(start, length, found[ROWS], buffers, found, HEAD)) {
            throw damaged(path + ": page " + page + " does not hold what its header says");
        }
        found[STEP] = evenStep(start + found[HEAD], found[ROWS]);
        pages.set(page, found);
        return found;
    }

    /** Gives the step in which codes follow each other, 0 if it varies. */
    private static int evenStep(long base, int count) {
        long step = count > 1 ? Platform.getLong(null, base + 8) - Platform.getLong(null, base) : 1;
        for (int i = 2; i < count; i++) {
            if (Platform.getLong(null, base + 8L * i) - Platform.getLong(null, base + 8L * (i - 1)) != step) {
                return 0;
            }
        }
        return step > 0 && step <= Integer.MAX_VALUE ? (int) step : 0;
    }
}
