package bench

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"runtime"
	"time"
)

// inside is the server's own report of its memory after a forced garbage collection.
type inside struct {
	Heap       uint64 `json:"heap_bytes"`
	Goroutines int    `json:"goroutines"`
}

// Probe is the server's side: for each connection to socket it runs the garbage collector and
// writes its live heap and its number of goroutines as JSON. It serves until the process ends.
func Probe(socket string) error {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			// Twice, because the second collection frees what the first one has finalized.
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			// The write fails if the harness went away; the harness may connect again.
			_ = json.NewEncoder(conn).Encode(inside{Heap: m.HeapAlloc, Goroutines: runtime.NumGoroutine()})
			_ = conn.Close()
		}
	}()
	return nil
}

// ask requests a report from the server at socket.
func ask(socket string) (inside, error) {
	var in inside
	conn, err := net.DialTimeout("unix", socket, 10*time.Second)
	if err != nil {
		return in, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	// Read to the end: then the server has closed its side, and the connection no longer counts
	// among its descriptors.
	b, err := io.ReadAll(conn)
	if err != nil {
		return in, err
	}
	return in, json.Unmarshal(b, &in)
}
