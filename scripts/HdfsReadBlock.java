import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Reads the cells of one data block of a striped file by HDFS's own client: positional reads, some at once. Where the block is lost, its
 * client decodes each cell. Prints the time from opening the file to the last byte, and the SHA-256 of the block. One program reads
 * several blocks, one after the other, so that the first ones warm up the virtual machine.
 *
 * Arguments: FILE CELL_BYTES K, then for each block its GROUP (counted from 0), INDEX and BYTES, and how many cells AT_ONCE.
 * Run by: scripts/hdfs.sh client DIR scripts/HdfsReadBlock.java ARGUMENTS
 */
public final class HdfsReadBlock {
    public static void main(String[] args) throws Exception {
        Path path = new Path(args[0]);
        int cell = Integer.parseInt(args[1]);
        int k = Integer.parseInt(args[2]);
        try (FileSystem fs = FileSystem.get(new Configuration())) {
            long group = fs.getFileStatus(path).getBlockSize() * k;
            for (int i = 3; i + 3 < args.length; i += 4) {
                long first = Long.parseLong(args[i]) * group + Long.parseLong(args[i + 1]) * cell;
                long bytes = Long.parseLong(args[i + 2]);
                ExecutorService threads = Executors.newFixedThreadPool(Integer.parseInt(args[i + 3]));
                long began = System.nanoTime();
                MessageDigest sum = MessageDigest.getInstance("SHA-256");
                try (FSDataInputStream in = fs.open(path)) {
                    List<Future<byte[]>> cells = new ArrayList<>();
                    for (long at = 0; at < bytes; at += cell) {
                        long from = first + at * k;
                        byte[] buffer = new byte[(int) Math.min(cell, bytes - at)];
                        cells.add(threads.submit(() -> {
                            in.readFully(from, buffer);
                            return buffer;
                        }));
                    }
                    for (Future<byte[]> one : cells) {
                        sum.update(one.get());
                    }
                } finally {
                    threads.shutdownNow();
                }
                long ms = (System.nanoTime() - began) / 1_000_000;
                StringBuilder hex = new StringBuilder();
                for (byte b : sum.digest()) {
                    hex.append(String.format("%02x", b));
                }
                System.out.println(ms + " " + hex);
            }
        }
    }
}
