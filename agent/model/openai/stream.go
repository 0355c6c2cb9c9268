package openai

import (
	"io"

	"github.com/holdfast-run/holdfast/internal/sse"
)

const (
	// maxBody is the greatest size of an answer's body, maxEvent of one event in it, in bytes.
	maxBody  = 64 << 20
	maxEvent = 8 << 20
)

// events reads server-sent events and calls take with the data of each, until take returns false
// or an error. An event that is incomplete at the end of the stream is dropped, except a last [DONE].
func events(r io.Reader, take func(data []byte) (bool, error)) error {
	for in := sse.NewReader(r, maxEvent); ; {
		e, err := in.Next()
		if err == io.EOF && string(e.Data) == "[DONE]" {
			err = nil // the last line may lack its line end
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if more, err := take(e.Data); err != nil || !more {
			return err
		}
	}
}
