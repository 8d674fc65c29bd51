import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.erasurecode.ECBlock;
import org.apache.hadoop.io.erasurecode.ECBlockGroup;
import org.apache.hadoop.io.erasurecode.ECChunk;
import org.apache.hadoop.io.erasurecode.ErasureCoderOptions;
import org.apache.hadoop.io.erasurecode.coder.ErasureCodingStep;
import org.apache.hadoop.io.erasurecode.coder.HHXORErasureEncoder;
import org.apache.hadoop.io.erasurecode.rawcoder.RSRawDecoder;
import org.apache.hadoop.io.erasurecode.rawcoder.RSRawEncoder;
import org.apache.hadoop.io.erasurecode.rawcoder.XORRawEncoder;

/**
 * HDFS's own coders behind lines of text. A request is "encode rs|xor|hhxor k m" and k lines of
 * hexadecimal data blocks, or "decode rs k m" and n lines, "-" for a lost block; the answer is one line
 * a parity or lost block.
 */
public final class Peer {
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      int k = Integer.parseInt(words[2]);
      int m = Integer.parseInt(words[3]);
      byte[][] out = words[0].equals("encode")
          ? encode(words[1], k, m, blocks(in, k))
          : decode(k, m, blocks(in, k + m));
      for (byte[] block : out) {
        System.out.println(hex(block));
      }
      System.out.flush();
    }
  }

  private static byte[][] encode(String coder, int k, int m, byte[][] data) throws Exception {
    byte[][] parity = new byte[m][data[0].length];
    ErasureCoderOptions options = new ErasureCoderOptions(k, m);
    switch (coder) {
      case "rs" -> new RSRawEncoder(options).encode(data, parity);
      case "xor" -> new XORRawEncoder(options).encode(data, parity);
      case "hhxor" -> hitchhiker(options, data, parity);
      default -> throw new IllegalArgumentException(coder);
    }
    return parity;
  }

  /** Each block is two chunks: the sub-blocks of the first and of the second sub-stripe. */
  private static void hitchhiker(ErasureCoderOptions options, byte[][] data, byte[][] parity)
      throws Exception {
    int half = data[0].length / 2;
    HHXORErasureEncoder encoder = new HHXORErasureEncoder(options);
    encoder.setConf(new Configuration(false));
    ECBlockGroup group = new ECBlockGroup(blocks(data.length), blocks(parity.length));
    ErasureCodingStep step = encoder.calculateCoding(group);
    step.performCoding(chunks(data, half), chunks(parity, half));
    step.finish();
  }

  private static ECBlock[] blocks(int count) {
    ECBlock[] blocks = new ECBlock[count];
    for (int i = 0; i < count; i++) {
      blocks[i] = new ECBlock(false, false);
    }
    return blocks;
  }

  /** Chunk s * count + i is sub-block s of block i. */
  private static ECChunk[] chunks(byte[][] blocks, int half) {
    ECChunk[] chunks = new ECChunk[2 * blocks.length];
    for (int i = 0; i < chunks.length; i++) {
      byte[] block = blocks[i % blocks.length];
      chunks[i] = new ECChunk(ByteBuffer.wrap(block, i / blocks.length * half, half).slice());
    }
    return chunks;
  }

  private static byte[][] decode(int k, int m, byte[][] blocks) throws Exception {
    int lost = 0;
    int length = 0;
    for (byte[] block : blocks) {
      lost += block == null ? 1 : 0;
      length = block == null ? length : block.length;
    }
    int[] erased = new int[lost];
    for (int i = 0, at = 0; i < blocks.length; i++) {
      if (blocks[i] == null) {
        erased[at++] = i;
      }
    }
    byte[][] out = new byte[lost][length];
    new RSRawDecoder(new ErasureCoderOptions(k, m)).decode(blocks, erased, out);
    return out;
  }

  private static byte[][] blocks(BufferedReader in, int count) throws Exception {
    byte[][] blocks = new byte[count][];
    for (int i = 0; i < count; i++) {
      String line = in.readLine();
      if (!line.equals("-")) {
        blocks[i] = new byte[line.length() / 2];
        for (int b = 0; b < blocks[i].length; b++) {
          blocks[i][b] = (byte) Integer.parseInt(line.substring(2 * b, 2 * b + 2), 16);
        }
      }
    }
    return blocks;
  }

  private static String hex(byte[] block) {
    StringBuilder text = new StringBuilder();
    for (byte b : block) {
      text.append(String.format("%02x", b));
    }
    return text.toString();
  }
}
