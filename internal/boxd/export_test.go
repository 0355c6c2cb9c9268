package boxd

import (
	"crypto/sha256"
	"encoding/hex"
)

// Headline is the first line of an outcomes file with that content.
func Headline(content []byte) string {
	sum := sha256.Sum256(content)
	return outcomesHeadline + hex.EncodeToString(sum[:]) + "\n"
}

// SpoolMemory returns how many bytes of output all spools hold in memory.
func (s *Server) SpoolMemory() int64 { return s.spool.memory.Load() }
