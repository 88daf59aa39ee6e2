package semistream;

import java.net.URLDecoder;
import java.util.HashMap;
import java.util.Map;

/** What Python tells of a snapshot (`description.py`), as a query string: names and values, encoded as in a URL. */
final class Description {
    private final Map values = new HashMap();

    Description(String text) {
        String[] pairs = text.split("&");
        for (int i = 0; i < pairs.length; i++) {
            int middle = pairs[i].indexOf('=');
            values.put(pairs[i].substring(0, middle), decoded(pairs[i].substring(middle + 1)));
        }
    }

    private static String decoded(String value) {
        try {
            return URLDecoder.decode(value, "UTF-8");
        } catch (java.io.UnsupportedEncodingException error) {
            throw new IllegalStateException(error);
        }
    }

    String text(String name) {
        return (String) values.get(name);
    }

    long number(String name) {
        return Long.parseLong(text(name));
    }

    int[] numbers(String name) {
        return numbers(name, 0);
    }

    int[] numbers(String name, int more) {
        if (text(name).isEmpty()) {
            return new int[0];
        }
        String[] parts = text(name).split(",");
        int[] found = new int[parts.length];
        for (int i = 0; i < parts.length; i++) {
            found[i] = Integer.parseInt(parts[i]) + more;
        }
        return found;
    }
}
