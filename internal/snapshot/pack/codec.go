package pack

import (
	"sync"

	"github.com/klauspost/compress/zstd"
)

// buffers keeps buffers for blocks, so that later commits use them again. The garbage collector may free them. Safe for
// concurrent use.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() []byte {
	if kept, ok := b.pool.Get().(*[]byte); ok {
		return (*kept)[:0]
	}
	return make([]byte, 0, 32<<10)
}

func (b *buffers) put(buffer []byte) { b.pool.Put(&buffer) }

// zstdWindow is how many bytes back the encoder looks for repeated data. It bounds the encoder's memory. Only blobs of
// more than 1 MiB would gain from a larger window.
const zstdWindow = 1 << 20

// codec compresses and decompresses blocks in the caller's goroutine. It compresses one block at a time, and
// decompresses one at a time, so that a store uses at most one core for each. The garbage collector may free its memory
// while it is not used. Safe for concurrent use.
type codec struct {
	encoding, decoding sync.Mutex
	encoders, decoders sync.Pool
}

// compress appends the compressed form of raw to to.
func (c *codec) compress(to, raw []byte) ([]byte, error) {
	c.encoding.Lock()
	defer c.encoding.Unlock()
	e, _ := c.encoders.Get().(*zstd.Encoder)
	if e == nil {
		var err error
		e, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(zstdWindow),
			zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return nil, err
		}
	}
	defer c.encoders.Put(e)
	return e.EncodeAll(raw, to), nil
}

// decompress returns exactly size bytes, or an error if data holds more or fewer. It never allocates more than size
// bytes for the result.
func (c *codec) decompress(data []byte, size int) ([]byte, error) {
	c.decoding.Lock()
	defer c.decoding.Unlock()
	d, _ := c.decoders.Get().(*zstd.Decoder)
	if d == nil {
		var err error
		d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(MaxBlob), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, err
		}
	}
	defer c.decoders.Put(d)
	raw, err := d.DecodeAll(data, make([]byte, 0, size))
	if err == nil && len(raw) != size {
		err = zstd.ErrFrameSizeMismatch
	}
	return raw, err
}
