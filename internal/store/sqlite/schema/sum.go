package schema

import (
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/holdfast-run/holdfast"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumRooms is a pool of buffers for Sum, which would otherwise be allocated on the heap each time.
var sumRooms = sync.Pool{New: func() any { return new([256]byte) }}

// Sum returns the checksum of an event's row: of its key id, its time at and its fields. An empty
// Agent adds nothing, so that rows from before the column agent existed keep their checksums.
func Sum(id, at int64, e *holdfast.Event) int64 {
	room := sumRooms.Get().(*[256]byte)
	defer sumRooms.Put(room)
	b := binary.LittleEndian.AppendUint64(room[:0], uint64(id))
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = append(append(b, e.Type...), 0)
	b = append(append(b, e.Turn...), 0)
	if e.Agent != "" {
		b = append(append(b, e.Agent...), 0)
	}
	return int64(crc32.Update(crc32.Update(0, castagnoli, b), castagnoli, e.Data))
}
