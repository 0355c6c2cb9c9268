package schema

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/holdfast-run/holdfast"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the checksum of an event's row, including its place in the log. An event
// of the session's own agent has the sum that it had before there were child agents.
func Sum(id, at int64, e *holdfast.Event) int64 {
	var room [256]byte
	b := binary.LittleEndian.AppendUint64(room[:0], uint64(id))
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = append(append(b, e.Type...), 0)
	b = append(append(b, e.Turn...), 0)
	if e.Agent != "" {
		b = append(append(b, e.Agent...), 0)
	}
	return int64(crc32.Update(crc32.Update(0, castagnoli, b), castagnoli, e.Data))
}
