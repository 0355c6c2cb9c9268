//go:build linux

package acp_test

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
)

// translate turns tool uses in a stream of the Messages API into the names that an
// agent has for its tools and their fields.
func translate(body io.ReadCloser, names, fields map[string]string) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		defer body.Close()
		t := &translator{w: pw, names: names, fields: fields}
		sc := bufio.NewScanner(body)
		sc.Buffer(nil, 16<<20)
		var err error
		for err == nil && sc.Scan() {
			err = t.line(sc.Text())
		}
		if err == nil {
			err = sc.Err()
		}
		_ = pw.CloseWithError(err)
	}()
	return struct {
		io.Reader
		io.Closer
	}{pr, closers{pr, body}}
}

type closers [2]io.Closer

func (c closers) Close() error { return c[0].Close() }

type translator struct {
	w             io.Writer
	names, fields map[string]string
	// input gathers that of the tool use that streams.
	inTool bool
	input  strings.Builder
	event  string
}

func (t *translator) line(l string) error {
	data, ok := strings.CutPrefix(l, "data: ")
	if name, is := strings.CutPrefix(l, "event: "); is {
		t.event = name
		return nil
	}
	if !ok {
		if l == "" {
			return nil
		}
		_, err := io.WriteString(t.w, l+"\n")
		return err
	}
	var e map[string]any
	if json.Unmarshal([]byte(data), &e) != nil {
		return t.emit(t.event, data)
	}
	switch t.event {
	case "content_block_start":
		block, _ := e["content_block"].(map[string]any)
		if t.inTool = block["type"] == "tool_use"; t.inTool {
			t.input.Reset()
			if n := t.names[block["name"].(string)]; n != "" {
				block["name"] = n
			}
		}
	case "content_block_delta":
		delta, _ := e["delta"].(map[string]any)
		if piece, ok := delta["partial_json"].(string); ok && t.inTool {
			t.input.WriteString(piece)
			return nil
		}
	case "content_block_stop":
		if t.inTool {
			t.inTool = false
			err := t.emitJSON("content_block_delta", map[string]any{
				"type": "content_block_delta", "index": e["index"], "delta": map[string]any{"type": "input_json_delta", "partial_json": t.renamed()},
			})
			if err != nil {
				return err
			}
		}
	}
	return t.emitJSON(t.event, e)
}

// renamed is the input with its fields as the agent names them.
func (t *translator) renamed() string {
	var in map[string]any
	if json.Unmarshal([]byte(t.input.String()), &in) != nil {
		return t.input.String()
	}
	for from, to := range t.fields {
		if v, ok := in[from]; ok {
			delete(in, from)
			if s, isString := v.(string); isString && from == "file_path" && !strings.HasPrefix(s, "/") {
				v = "/workspace/" + s
			}
			in[to] = v
		}
	}
	if _, ok := in["command"]; ok {
		in["description"] = "a command"
	}
	out, _ := json.Marshal(in)
	return string(out)
}

func (t *translator) emitJSON(event string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.emit(event, string(raw))
}

func (t *translator) emit(event, data string) error {
	_, err := io.WriteString(t.w, "event: "+event+"\ndata: "+data+"\n\n")
	return err
}
