package jsonrpc

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                    true,
		`{"jsonrpc":"2.0","method":"session/update","params":{}}`: true,
		`{"jsonrpc":"2.0","id":"a","method":"fs/x"}`:              true,
		`{"id":null,"method":"x"}`:                                true,
		`{"id":null,"error":{"code":1,"message":"x"}}`:            true,
		`{"result":{}}`:           false,
		`{"id":null,"result":{}}`: false,
		`{"id":[1],"method":"x"}`: false,
		`{"id":false,"result":1}`: false,
		`[]`:                      false,
		`null`:                    false,
		`nonsense`:                false,
		``:                        false,
		`{"id":"` + strings.Repeat("x", MaxID) + `","method":1}`: false,
		`{"id":"` + strings.Repeat("x", MaxID) + `"}`:            false,
		`{"id":"` + strings.Repeat("x", MaxID-2) + `"}`:          true,
	} {
		if _, err := Parse([]byte(line)); (err == nil) != want {
			t.Errorf("%.60s: %v", line, err)
		}
	}
	for line, want := range map[string]bool{
		`{"id":7,"result":{}}`: true, `{"id":"7","result":{}}`: false, `{"id":7,"method":"x"}`: false,
		`{"id":7.5,"result":{}}`: false, `{"id":8,"error":{"code":1}}`: false, `{"id":7,"error":{"code":1}}`: true,
	} {
		m, err := Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Answers(Number(7)); got != want {
			t.Errorf("%s answers %v", line, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":[1]}}`))
	f.Add([]byte(`{"id":"a","error":{"code":1,"message":"x","data":null}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Parse(line)
		if err != nil {
			return
		}
		again, err := Parse(m.Encode())
		if err != nil || again.ID != m.ID || again.Method != m.Method || (again.Error == nil) != (m.Error == nil) {
			t.Fatalf("%s became %s: %v", line, m.Encode(), err)
		}
	})
}
