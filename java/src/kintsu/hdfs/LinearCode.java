package kintsu.hdfs;

import java.util.Arrays;

/**
 * A systematic linear code over GF(2^8), polynomial 0x11D: encoding, and decoding from any blocks that suffice.
 *
 * <p>Bytes are combined bit by bit of the coefficients (Horner's rule): for each bit, from the highest one, the sum is doubled,
 * and the inputs whose coefficient has that bit are added. These are loops over bytes without table look-ups, which the JVM
 * compiles to vector instructions.
 *
 * <p>Immutable, so it may be shared by threads.
 */
public final class LinearCode {
  /** Bytes of each block that are combined at a time, so that they stay in the nearest caches. */
  private static final int PIECE = 4096;

  private static final int POLYNOMIAL = 0x11D;
  private static final int[] EXP = new int[510];
  private static final int[] LOG = new int[256];

  static {
    for (int i = 0, x = 1; i < 255; i++, x = (x << 1) ^ (x >= 128 ? POLYNOMIAL : 0)) {
      EXP[i] = x;
      EXP[i + 255] = x;
      LOG[x] = i;
    }
  }

  private final int data;
  private final int parity;
  /** A row of coefficients for each block, the identity on top. */
  private final int[][] generator;

  /**
   * The code with {@code data} data blocks and {@code parity} parity blocks, whose rows of coefficients follow each other in
   * {@code coefficients}, two hexadecimal digits each.
   */
  public LinearCode(int data, int parity, String coefficients) {
    if (coefficients.length() != 2 * data * parity) {
      throw new IllegalArgumentException("expected " + data * parity + " coefficients in " + 2 * data * parity
          + " digits, got " + coefficients.length());
    }
    this.data = data;
    this.parity = parity;
    generator = new int[data + parity][data];
    for (int i = 0; i < data; i++) {
      generator[i][i] = 1;
    }
    for (int at = 0; at < data * parity; at++) {
      generator[data + at / data][at % data] = Integer.parseInt(coefficients.substring(2 * at, 2 * at + 2), 16);
    }
  }

  public int data() {
    return data;
  }

  public int parity() {
    return parity;
  }

  /** The rows that make the parity blocks of the data blocks: parity x data. */
  public int[][] parityRows() {
    return Arrays.copyOfRange(generator, data, data + parity);
  }

  /**
   * The rows that make the blocks {@code wanted} of the blocks {@code given}: wanted.length x given.length. Null if the given
   * blocks do not determine the wanted ones.
   */
  public int[][] rows(int[] given, int[] wanted) {
    // One equation for each data block: the given blocks' columns, then the wanted blocks' columns.
    int columns = given.length + wanted.length;
    int[][] system = new int[data][columns];
    for (int j = 0; j < data; j++) {
      for (int i = 0; i < given.length; i++) {
        system[j][i] = generator[given[i]][j];
      }
      for (int i = 0; i < wanted.length; i++) {
        system[j][given.length + i] = generator[wanted[i]][j];
      }
    }
    int[] pivots = new int[data];
    int rank = 0;
    for (int column = 0; column < given.length && rank < data; column++) {
      if (eliminate(system, rank, column)) {
        pivots[rank++] = column;
      }
    }
    int[][] rows = new int[wanted.length][given.length];
    for (int j = 0; j < data; j++) {
      for (int i = 0; i < wanted.length; i++) {
        int value = system[j][given.length + i];
        if (j < rank) {
          rows[i][pivots[j]] = value;
        } else if (value != 0) {
          return null;
        }
      }
    }
    return rows;
  }

  /** Makes {@code column} the unit vector of row {@code at}, if a row from there on has something in it. */
  private static boolean eliminate(int[][] system, int at, int column) {
    int found = at;
    while (found < system.length && system[found][column] == 0) {
      found++;
    }
    if (found == system.length) {
      return false;
    }
    int[] pivot = system[found];
    system[found] = system[at];
    system[at] = pivot;
    int scale = EXP[255 - LOG[pivot[column]]];
    for (int c = 0; c < pivot.length; c++) {
      pivot[c] = multiply(pivot[c], scale);
    }
    for (int r = 0; r < system.length; r++) {
      int factor = system[r][column];
      for (int c = 0; r != at && factor != 0 && c < pivot.length; c++) {
        system[r][c] ^= multiply(pivot[c], factor);
      }
    }
    return true;
  }

  private static int multiply(int a, int b) {
    return a == 0 || b == 0 ? 0 : EXP[LOG[a] + LOG[b]];
  }

  /**
   * Overwrites {@code length} bytes of each output with the combination of the inputs by its row of coefficients. Inputs and
   * outputs begin at their offsets, and must not overlap.
   */
  public static void combine(int[][] rows, byte[][] inputs, int[] inputOffsets, byte[][] outputs, int[] outputOffsets,
      int length) {
    byte[][] pieces = new byte[inputs.length][PIECE];
    byte[] sum = new byte[PIECE];
    byte[] carries = new byte[PIECE];
    for (int from = 0; from < length; from += PIECE) {
      int count = Math.min(PIECE, length - from);
      for (int j = 0; j < inputs.length; j++) {
        System.arraycopy(inputs[j], inputOffsets[j] + from, pieces[j], 0, count);
      }
      for (int i = 0; i < rows.length; i++) {
        combinePieces(rows[i], pieces, sum, carries);
        System.arraycopy(sum, 0, outputs[i], outputOffsets[i] + from, count);
      }
    }
  }

  private static void combinePieces(int[] row, byte[][] pieces, byte[] sum, byte[] carries) {
    Arrays.fill(sum, (byte) 0);
    boolean begun = false;
    byte[] waiting = null;
    for (int bit = 7; bit >= 0; bit--) {
      if (begun) {
        carry(carries, sum);
        mask(carries);
        twice(sum, carries);
      }
      for (int j = 0; j < row.length; j++) {
        if ((row[j] >> bit & 1) == 0) {
          continue;
        }
        begun = true;
        if (waiting == null) {
          waiting = pieces[j];
        } else {
          add(sum, waiting, pieces[j]);
          waiting = null;
        }
      }
      if (waiting != null) {
        add(sum, waiting);
        waiting = null;
      }
    }
  }

  // Each loop uses one index for all arrays, and does one kind of thing: others are not compiled to vector instructions.

  private static void carry(byte[] carries, byte[] sum) {
    for (int i = 0; i < PIECE; i++) {
      carries[i] = (byte) (sum[i] >> 7);
    }
  }

  private static void mask(byte[] carries) {
    for (int i = 0; i < PIECE; i++) {
      carries[i] = (byte) (carries[i] & POLYNOMIAL);
    }
  }

  private static void twice(byte[] sum, byte[] carries) {
    for (int i = 0; i < PIECE; i++) {
      sum[i] = (byte) ((sum[i] + sum[i]) ^ carries[i]);
    }
  }

  private static void add(byte[] sum, byte[] a) {
    for (int i = 0; i < PIECE; i++) {
      sum[i] = (byte) (sum[i] ^ a[i]);
    }
  }

  private static void add(byte[] sum, byte[] a, byte[] b) {
    for (int i = 0; i < PIECE; i++) {
      sum[i] = (byte) (sum[i] ^ a[i] ^ b[i]);
    }
  }
}
