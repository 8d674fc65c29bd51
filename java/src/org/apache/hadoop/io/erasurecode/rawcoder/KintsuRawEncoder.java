package org.apache.hadoop.io.erasurecode.rawcoder;

import java.io.IOException;
import java.nio.ByteBuffer;
import kintsu.hdfs.LinearCode;
import org.apache.hadoop.io.erasurecode.ErasureCoderOptions;

/** Encodes with a linear code. It is in this package because the parameters of the methods that Hadoop calls are. */
public final class KintsuRawEncoder extends RawErasureEncoder {
  private final int[][] rows;

  public KintsuRawEncoder(LinearCode code, ErasureCoderOptions options) {
    super(options);
    rows = code.parityRows();
  }

  @Override
  protected void doEncode(ByteArrayEncodingState state) {
    LinearCode.combine(rows, state.inputs, state.inputOffsets, state.outputs, state.outputOffsets, state.encodeLength);
  }

  @Override
  protected void doEncode(ByteBufferEncodingState state) throws IOException {
    byte[][] inputs = copies(state.inputs);
    byte[][] outputs = new byte[state.outputs.length][state.encodeLength];
    LinearCode.combine(rows, inputs, new int[inputs.length], outputs, new int[outputs.length], state.encodeLength);
    put(outputs, state.outputs);
  }

  /** The bytes of direct buffers, whose positions stay; null for null. */
  static byte[][] copies(ByteBuffer[] buffers) {
    byte[][] copies = new byte[buffers.length][];
    for (int i = 0; i < buffers.length; i++) {
      if (buffers[i] != null) {
        copies[i] = new byte[buffers[i].remaining()];
        buffers[i].duplicate().get(copies[i]);
      }
    }
    return copies;
  }

  /** Writes bytes into buffers, whose positions stay. */
  static void put(byte[][] bytes, ByteBuffer[] buffers) {
    for (int i = 0; i < bytes.length; i++) {
      buffers[i].duplicate().put(bytes[i]);
    }
  }
}
