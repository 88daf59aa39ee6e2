package semistream;

import org.apache.spark.unsafe.Platform;

/** The two hashes of a master table: that of keys that are not integers (`kernels.py`), and the checksum of pages. */
final class Hash {
    private static final long PRIME32_1 = 0x9E3779B1L, PRIME32_2 = 0x85EBCA77L, PRIME32_3 = 0xC2B2AE3DL;
    private static final long PRIME64_1 = 0x9E3779B185EBCA87L, PRIME64_2 = 0xC2B2AE3D27D4EB4FL;
    private static final long PRIME64_3 = 0x165667B19E3779F9L, PRIME64_4 = 0x85EBCA77C2B2AE63L;
    private static final long PRIME64_5 = 0x27D4EB2F165667C5L;
    private static final String SECRET = "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
            + "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
            + "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
            + "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
            + "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
            + "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e";
    private static final int STRIPE = 64, STRIPES = 16; // bytes; to a block
    private static final long[] KEYS = words(0, 24), LAST = words(121, 8), MERGE = words(11, 8);

    private Hash() {}

    private static long[] words(int start, int count) {
        long[] found = new long[count];
        for (int i = 0; i < 8 * count; i++) {
            int at = 2 * (start + i);
            long part = Integer.parseInt(SECRET.substring(at, at + 2), 16);
            found[i / 8] |= part << 8 * (i % 8);
        }
        return found;
    }

    /** Gives the code of a key that is a string of bytes: its SipHash-1-3. */
    static long ofBytes(long[] seed, Object base, long offset, int length) {
        long a = seed[0] ^ 0x736F6D6570736575L, b = seed[1] ^ 0x646F72616E646F6DL;
        long c = seed[0] ^ 0x6C7967656E657261L, d = seed[1] ^ 0x7465646279746573L;
        int whole = length & ~7;
        long word = (long) length << 56;
        for (int i = whole; i < length; i++) {
            word |= (Platform.getByte(base, offset + i) & 0xFFL) << 8 * (i - whole);
        }
        for (int i = 0; i <= whole + 24; i += 8) { // the words, the last one, and three rounds more
            long next = i < whole ? Platform.getLong(base, offset + i) : i == whole ? word : 0;
            if (i == whole + 8) {
                c ^= 0xFF;
            }
            d ^= next;
            a += b;
            c += d;
            b = Long.rotateLeft(b, 13) ^ a;
            d = Long.rotateLeft(d, 16) ^ c;
            a = Long.rotateLeft(a, 32) + d;
            c += b;
            b = Long.rotateLeft(b, 17) ^ c;
            d = Long.rotateLeft(d, 21) ^ a;
            c = Long.rotateLeft(c, 32);
            a ^= next;
        }
        return a ^ b ^ c ^ d;
    }

    /** Gives XXH3 of 64 bits, without a seed, of more than 240 bytes. */
    static long ofPage(long address, int length) {
        long[] sums = {
            PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1
        };
        int stripes = (length - 1) / STRIPE;
        for (int i = 0; i < stripes; i++) {
            add(sums, address + (long) STRIPE * i, KEYS, i % STRIPES);
            if (i % STRIPES == STRIPES - 1) {
                scramble(sums);
            }
        }
        add(sums, address + length - STRIPE, LAST, 0);
        long hash = length * PRIME64_1;
        for (int i = 0; i < 8; i += 2) {
            hash += folded(sums[i] ^ MERGE[i], sums[i + 1] ^ MERGE[i + 1]);
        }
        hash = (hash ^ hash >>> 37) * 0x165667919E3779F9L;
        return hash ^ hash >>> 32;
    }

    private static void add(long[] sums, long address, long[] keys, int first) {
        for (int i = 0; i < 8; i++) {
            long value = Platform.getLong(null, address + 8L * i), key = value ^ keys[first + i];
            sums[i ^ 1] += value;
            sums[i] += (key & 0xFFFFFFFFL) * (key >>> 32);
        }
    }

    private static void scramble(long[] sums) {
        for (int i = 0; i < 8; i++) {
            sums[i] = (sums[i] ^ sums[i] >>> 47 ^ KEYS[STRIPES + i]) * PRIME32_1;
        }
    }

    /** Gives both halves of a product of 128 bits, one over the other. */
    private static long folded(long a, long b) {
        long high = Math.multiplyHigh(a, b) + (a >> 63 & b) + (b >> 63 & a);
        return a * b ^ high;
    }
}
