package openai

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

const (
	// maxBody is the greatest size of an answer's body, maxEvent of one event in it, in bytes.
	maxBody  = 64 << 20
	maxEvent = 8 << 20
)

// events reads server-sent events and calls take with the data of each, until take returns false
// or an error. Lines end in LF or CRLF; comments and other fields are skipped. An event that is
// incomplete at the end of the stream is dropped.
func events(r io.Reader, take func(data []byte) (bool, error)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxEvent)
	var data []byte
	has := false
	for lines.Scan() {
		line := bytes.TrimRight(lines.Bytes(), "\r")
		if len(line) == 0 {
			if !has {
				continue
			}
			if more, err := take(data); err != nil || !more {
				return err
			}
			data, has = data[:0], false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if has {
			data = append(data, '\n')
		}
		data, has = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
		if len(data) > maxEvent {
			return fmt.Errorf("an event in the model server's stream is over %d bytes", maxEvent)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if string(data) == "[DONE]" {
		// The last line may lack its line end.
		_, err := take(data)
		return err
	}
	return nil
}
