package checkpoints

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func TestNumbers(t *testing.T) {
	for _, list := range [][]int64{nil, {1}, {1, 2, 3}, {127, 128, 255, 100_000}, {1, 1 << 40}, {math.MaxInt64 >> 1}} {
		got, err := decodeNumbers(encodeNumbers(list))
		if err != nil || !slices.Equal(got, list) {
			t.Errorf("%v came back as %v, %v", list, got, err)
		}
	}
	var all []int64
	for n := int64(1000); n < 1100; n++ {
		all = append(all, n)
	}
	if n := len(encodeNumbers(all)); n != 101 {
		t.Errorf("100 numbers in a row take %d bytes", n)
	}
}

// FuzzNumbers decodes any bytes: the result is ascending and encodes to the same bytes, or the bytes
// are refused.
func FuzzNumbers(f *testing.F) {
	for _, raw := range []string{"", "\x00", "\x01\x00", "\x81\x00", "\x80", "\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := decodeNumbers(raw)
		if err != nil {
			if list != nil || !holdfast.IsKind(err, holdfast.KindInternal) {
				t.Fatalf("%x: %v, %v", raw, list, err)
			}
			return
		}
		if !slices.IsSorted(list) || len(list) > 0 && list[0] < 1 || !bytes.Equal(encodeNumbers(list), raw) {
			t.Fatalf("%x decodes to %v", raw, list)
		}
	})
}
