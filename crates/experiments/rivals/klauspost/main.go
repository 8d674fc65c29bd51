// A C interface to klauspost/reedsolomon with one goroutine, so that `kintsu bench kernel` can measure it in turn with
// its own kernels, in one process.
package main

import "C"

import (
	"sync"
	"unsafe"

	"github.com/klauspost/reedsolomon"
)

// A coefficient matrix, and the room for the blocks of a call.
type matrix struct {
	encoder reedsolomon.Encoder
	blocks  [][]byte
}

var (
	lock     sync.Mutex
	matrices []*matrix
)

// klaus_new prepares coefs, rows x cols, row-major. It returns the number of the matrix, or -1.
//
//export klaus_new
func klaus_new(cols, rows C.int, coefs *C.uchar) C.int {
	all := unsafe.Slice((*byte)(coefs), int(cols*rows))
	parity := make([][]byte, rows)
	for i := range parity {
		parity[i] = append([]byte(nil), all[i*int(cols):(i+1)*int(cols)]...)
	}
	encoder, err := reedsolomon.New(int(cols), int(rows),
		reedsolomon.WithMaxGoroutines(1), reedsolomon.WithCustomMatrix(parity))
	if err != nil {
		return -1
	}
	lock.Lock()
	defer lock.Unlock()
	matrices = append(matrices, &matrix{encoder, make([][]byte, cols+rows)})
	return C.int(len(matrices) - 1)
}

// klaus_apply computes the outputs from the inputs: cols + rows pointers to length bytes each, inputs first. It returns
// 0, or -1. A matrix is used by one thread at a time.
//
//export klaus_apply
func klaus_apply(number C.int, blocks **C.uchar, length C.longlong) C.int {
	m := matrices[number]
	pointers := unsafe.Slice((**byte)(unsafe.Pointer(blocks)), len(m.blocks))
	for i := range m.blocks {
		m.blocks[i] = unsafe.Slice(pointers[i], int(length))
	}
	if m.encoder.Encode(m.blocks) != nil {
		return -1
	}
	return 0
}

// klaus_nothing does nothing: what a call into Go costs.
//
//export klaus_nothing
func klaus_nothing() {}

func main() {}
