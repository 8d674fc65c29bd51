package org.apache.hadoop.io.erasurecode.rawcoder;

import java.io.IOException;
import java.util.Arrays;
import kintsu.hdfs.LinearCode;
import org.apache.hadoop.io.erasurecode.ErasureCoderOptions;

/**
 * Decodes with a linear code, from whatever blocks HDFS has read. HDFS reads as many as there are data blocks, the first ones
 * that it can have; where these do not determine the lost ones, decoding fails in words.
 */
public final class KintsuRawDecoder extends RawErasureDecoder {
  private final String codec;
  private final LinearCode code;
  /** What the rows are for: those of the last call, which mostly fit the next one. */
  private int[] given = {};
  private int[] wanted = {};
  private int[][] rows = {};

  public KintsuRawDecoder(String codec, LinearCode code, ErasureCoderOptions options) {
    super(options);
    this.codec = codec;
    this.code = code;
  }

  @Override
  protected void doDecode(ByteArrayDecodingState state) throws IOException {
    decode(state.inputs, state.inputOffsets, state.erasedIndexes, state.outputs, state.outputOffsets, state.decodeLength);
  }

  @Override
  protected void doDecode(ByteBufferDecodingState state) throws IOException {
    byte[][] inputs = KintsuRawEncoder.copies(state.inputs);
    byte[][] outputs = new byte[state.outputs.length][state.decodeLength];
    decode(inputs, new int[inputs.length], state.erasedIndexes, outputs, new int[outputs.length], state.decodeLength);
    KintsuRawEncoder.put(outputs, state.outputs);
  }

  private void decode(byte[][] inputs, int[] offsets, int[] erased, byte[][] outputs, int[] outputOffsets, int length)
      throws IOException {
    int[] valid = CoderUtil.getValidIndexes(inputs);
    if (!Arrays.equals(valid, given) || !Arrays.equals(erased, wanted)) {
      rows = code.rows(valid, erased);
      given = valid;
      wanted = erased.clone();
    }
    if (rows == null) {
      throw new IOException("codec " + codec + ": blocks " + Arrays.toString(valid) + " do not determine blocks "
          + Arrays.toString(erased) + "; HDFS reads no others, but kintsu hdfs get does");
    }
    byte[][] used = new byte[valid.length][];
    int[] usedOffsets = new int[valid.length];
    for (int i = 0; i < valid.length; i++) {
      used[i] = inputs[valid[i]];
      usedOffsets[i] = offsets[valid[i]];
    }
    LinearCode.combine(rows, used, usedOffsets, outputs, outputOffsets, length);
  }
}
