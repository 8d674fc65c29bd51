package kintsu.hdfs;

import java.io.IOException;
import java.util.Random;
import org.apache.hadoop.io.erasurecode.CodecRegistry;
import org.apache.hadoop.io.erasurecode.ErasureCoderOptions;
import org.apache.hadoop.io.erasurecode.rawcoder.RawErasureCoderFactory;
import org.apache.hadoop.io.erasurecode.rawcoder.RawErasureDecoder;
import org.apache.hadoop.io.erasurecode.rawcoder.RawErasureEncoder;

/**
 * How fast this machine encodes, and decodes the first data block, with a coder that Hadoop knows, on one thread:
 * {@code java -cp ... kintsu.hdfs.Speed CODEC CODER DATA PARITY}.
 */
public final class Speed {
  private static final int CELL = 1 << 20;
  private static final int ROUNDS = 12;
  private static final int TIMES = 8;

  private Speed() {}

  public static void main(String[] args) throws IOException {
    if (args.length != 4) {
      throw new IllegalArgumentException("expected CODEC CODER DATA PARITY");
    }
    int data = Integer.parseInt(args[2]);
    int parity = Integer.parseInt(args[3]);
    RawErasureCoderFactory factory = CodecRegistry.getInstance().getCoderByName(args[0], args[1]);
    ErasureCoderOptions options = new ErasureCoderOptions(data, parity);
    RawErasureEncoder encoder = factory.createEncoder(options);
    RawErasureDecoder decoder = factory.createDecoder(options);
    byte[][] blocks = new byte[data][CELL];
    Random random = new Random(1);
    for (byte[] block : blocks) {
      random.nextBytes(block);
    }
    byte[][] parities = new byte[parity][CELL];
    byte[][] given = new byte[data + parity][];
    System.arraycopy(blocks, 1, given, 1, data - 1);
    given[data] = parities[0];
    byte[][] decoded = new byte[1][CELL];
    double encode = best(data, () -> encoder.encode(blocks, parities));
    double decode = best(data, () -> decoder.decode(given, new int[] {0}, decoded));
    System.out.printf("%s/%s %d+%d: encode %.0f MB/s, decode one block %.0f MB/s (of data, one thread)%n", args[0],
        args[1], data, parity, encode, decode);
  }

  private interface Work {
    void run() throws IOException;
  }

  /** The best of some rounds, in MB of data a second. */
  private static double best(int data, Work work) throws IOException {
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
      long begun = System.nanoTime();
      for (int i = 0; i < TIMES; i++) {
        work.run();
      }
      best = Math.max(best, 1e3 * TIMES * data * CELL / (System.nanoTime() - begun));
    }
    return best;
  }
}
