package engine

// Suggest is for tests.
var Suggest = suggest
