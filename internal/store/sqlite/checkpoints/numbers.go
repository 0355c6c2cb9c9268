package checkpoints

import (
	"encoding/binary"

	"github.com/holdfast-run/holdfast"
)

// encodeNumbers returns the stored form of ascending pack numbers: the distance of each from the one
// before, as a varint.
func encodeNumbers(list []int64) []byte {
	out := make([]byte, 0, 2*len(list))
	last := int64(0)
	for _, n := range list {
		out = binary.AppendUvarint(out, uint64(n-last))
		last = n
	}
	return out
}

// decodeNumbers returns the pack numbers that encodeNumbers encoded; internal for any other bytes.
func decodeNumbers(raw []byte) ([]int64, error) {
	var out []int64
	last := int64(0)
	for len(raw) > 0 {
		d, n := binary.Uvarint(raw)
		if n <= 0 || d == 0 || d > uint64(1<<62) || last+int64(d) < last || n > 1 && raw[n-1] == 0 {
			return nil, holdfast.Errorf(holdfast.KindInternal, "store.checkpoint", "a checkpoint's stored list of packs cannot be decoded after pack number %d", last)
		}
		last += int64(d)
		out, raw = append(out, last), raw[n:]
	}
	return out, nil
}
