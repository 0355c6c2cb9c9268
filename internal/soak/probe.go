package soak

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"runtime"
	"time"
)

// inside is what the server says of itself after a forced collection.
type inside struct {
	Heap       uint64 `json:"heap_bytes"`
	Goroutines int    `json:"goroutines"`
}

// Probe is the server's side: whoever connects to socket has it collect garbage
// and gets its live heap and its goroutines as JSON. It ends with the process.
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
			// What the first collection finalizes the second one frees.
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			// A harness that went away does not read; it may connect again.
			_ = json.NewEncoder(conn).Encode(inside{Heap: m.HeapAlloc, Goroutines: runtime.NumGoroutine()})
			_ = conn.Close()
		}
	}()
	return nil
}

// ask probes the server at socket.
func ask(socket string) (inside, error) {
	var in inside
	conn, err := net.DialTimeout("unix", socket, 10*time.Second)
	if err != nil {
		return in, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	// To the end: then the server's side is closed, and no descriptor any more.
	b, err := io.ReadAll(conn)
	if err != nil {
		return in, err
	}
	return in, json.Unmarshal(b, &in)
}
