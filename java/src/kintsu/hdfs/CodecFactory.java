package kintsu.hdfs;

import org.apache.hadoop.io.erasurecode.ErasureCoderOptions;
import org.apache.hadoop.io.erasurecode.rawcoder.KintsuRawDecoder;
import org.apache.hadoop.io.erasurecode.rawcoder.KintsuRawEncoder;
import org.apache.hadoop.io.erasurecode.rawcoder.RawErasureCoderFactory;
import org.apache.hadoop.io.erasurecode.rawcoder.RawErasureDecoder;
import org.apache.hadoop.io.erasurecode.rawcoder.RawErasureEncoder;

/**
 * The coders of one code. Hadoop finds factories by class name, and tells them only the numbers of blocks; so there is a
 * subclass with a constructor without parameters for each code ({@code kintsu hdfs codec} writes it).
 */
public abstract class CodecFactory implements RawErasureCoderFactory {
  private final String codec;
  private final LinearCode code;

  protected CodecFactory(String codec, int data, int parity, String coefficients) {
    this.codec = codec;
    this.code = new LinearCode(data, parity, coefficients);
  }

  @Override
  public RawErasureEncoder createEncoder(ErasureCoderOptions options) {
    return new KintsuRawEncoder(checked(options), options);
  }

  @Override
  public RawErasureDecoder createDecoder(ErasureCoderOptions options) {
    return new KintsuRawDecoder(codec, checked(options), options);
  }

  @Override
  public String getCoderName() {
    return "kintsu";
  }

  @Override
  public String getCodecName() {
    return codec;
  }

  private LinearCode checked(ErasureCoderOptions options) {
    if (options.getNumDataUnits() != code.data() || options.getNumParityUnits() != code.parity()) {
      throw new IllegalArgumentException("codec " + codec + ": expected " + code.data() + " data and " + code.parity()
          + " parity blocks, got " + options.getNumDataUnits() + " and " + options.getNumParityUnits());
    }
    return code;
  }
}
