/* Hot MS: Hot.main;Hot.outer;Hot.middle;Hot.leafA 70 %, Hot.outer;Hot.leafB 30 %, by counted iterations, compiled by the JVM after
 * its first moments. -XX:CompileCommand=dontinline keeps the functions apart. Prints "ready" as soon as they are compiled. */
public class Hot {
    static long burn(long n, long x) {
        for (long i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
        }
        return x;
    }

    static long leafA(long n) { return burn(n, 1); }
    static long leafB(long n) { return burn(n, 2); }
    static long middle(long unit) { return leafA(70 * unit) + 1; }
    static long outer(long unit) { return middle(unit) + leafB(30 * unit); }

    public static void main(String[] arguments) {
        long ms = arguments.length > 0 ? Long.parseLong(arguments[0]) : 4000;
        long start = System.nanoTime(), end = start + ms * 1_000_000, random = 12345, sink = 0;
        boolean said = false;
        for (long now = start; now < end; now = System.nanoTime()) {
            random = random * 6364136223846793005L + 1442695040888963407L;
            sink += outer(150 + (random >>> 33) % 251);
            if (!said && now - start > 1_000_000_000L) {
                said = true;
                System.out.println("{\"program\":\"Hot\",\"event\":\"ready\",\"pid\":" + ProcessHandle.current().pid() + "}");
                System.out.flush();
            }
        }
        System.out.println("{\"program\":\"Hot\",\"pid\":" + ProcessHandle.current().pid() + ",\"sink\":" + (sink == 42) + "}");
    }
}
