package openai

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

const (
	// maxBody bounds an answer, maxEvent one event of it, in bytes.
	maxBody  = 64 << 20
	maxEvent = 8 << 20
)

// events reads server-sent events and passes the data of each on until take says
// false or fails. Lines end in LF, CRLF or CR before one of them; comments and
// other fields are skipped. An event that the stream breaks off in is dropped.
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
			return fmt.Errorf("an event is over %d bytes", maxEvent)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if string(data) == "[DONE]" {
		// The last line of a server that does not end it.
		_, err := take(data)
		return err
	}
	return nil
}
