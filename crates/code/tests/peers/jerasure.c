/* Jerasure behind lines of text: GF(2^8), polynomial 0x11D.
 *
 * A request is "encode k m", m lines of k coefficients and k lines of data blocks; or "decode k m", m lines
 * of coefficients and k + m lines of blocks, "-" for a lost one; or "matrix r6 k 2". All bytes in hexadecimal.
 * The answer is one line a parity block, a lost block, or a row of the matrix. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerasure.h>
#include <reed_sol.h>

enum { LONGEST_LINE = 1 << 20 };

static char line[LONGEST_LINE];

/* Reads a line of bytes; returns their number, or -1 for "-". */
static int read_bytes(unsigned char *bytes) {
    if (fgets(line, sizeof line, stdin) == NULL) exit(1);
    if (line[0] == '-') return -1;
    int count = 0;
    for (unsigned value; sscanf(line + 2 * count, "%2x", &value) == 1; count++) bytes[count] = (unsigned char)value;
    return count;
}

static void print_bytes(const unsigned char *bytes, int count) {
    for (int i = 0; i < count; i++) printf("%02x", bytes[i]);
    putchar('\n');
}

static int *read_matrix(int k, int m) {
    int *matrix = calloc((size_t)k * m, sizeof *matrix);
    unsigned char row[256];
    for (int i = 0; i < m; i++) {
        if (read_bytes(row) != k) exit(1);
        for (int j = 0; j < k; j++) matrix[i * k + j] = row[j];
    }
    return matrix;
}

static void code(int k, int m, int decode) {
    int *matrix = read_matrix(k, m);
    char **blocks = calloc((size_t)(k + m), sizeof *blocks);
    int *lost = calloc((size_t)(k + m) + 1, sizeof *lost);
    int count = 0, length = 0;
    for (int i = 0; i < k + m; i++) {
        blocks[i] = calloc(1, LONGEST_LINE / 2);
        if (i >= k && !decode) continue;
        int got = read_bytes((unsigned char *)blocks[i]);
        if (got < 0) lost[count++] = i; else length = got;
    }
    lost[count] = -1;
    if (!decode) {
        jerasure_matrix_encode(k, m, 8, matrix, blocks, blocks + k, length);
        for (int i = 0; i < m; i++) print_bytes((unsigned char *)blocks[k + i], length);
    } else {
        if (jerasure_matrix_decode(k, m, 8, matrix, 0, lost, blocks, blocks + k, length) != 0) exit(1);
        for (int i = 0; i < count; i++) print_bytes((unsigned char *)blocks[lost[i]], length);
    }
    for (int i = 0; i < k + m; i++) free(blocks[i]);
    free(blocks), free(lost), free(matrix);
}

static void print_r6_matrix(int k) {
    int *matrix = reed_sol_r6_coding_matrix(k, 8);
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < k; j++) printf("%02x", matrix[i * k + j]);
        putchar('\n');
    }
    free(matrix);
}

int main(void) {
    char verb[16];
    int k, m;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "matrix r6 %d %d", &k, &m) == 2) print_r6_matrix(k);
        else if (sscanf(line, "%15s %d %d", verb, &k, &m) == 3) code(k, m, strcmp(verb, "decode") == 0);
        else return 1;
        fflush(stdout);
    }
    return 0;
}
