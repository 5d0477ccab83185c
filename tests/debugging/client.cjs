// An editor's session, with Microsoft's client for tests of debug adapters.  It prints what
// it was told, as JSON; the test compares that with the recording.
//
//     node client.cjs PACKAGES PYTHON KERNEL
const [packages, python, kernel] = process.argv.slice(2)
const { DebugClient } = require(`${packages}/@vscode/debugadapter-testsupport`)

const client = new DebugClient(python, "-m fragmenta debug --dap", "fragmenta", { shell: true }, true)
client.defaultTimeout = 1800000
const told = {}

async function stop(request) {
  const [event] = await Promise.all([client.waitForEvent("stopped"), request])
  const frames = await client.stackTraceRequest({ threadId: event.body.threadId })
  return { reason: event.body.reason, line: frames.body.stackFrames[0].line, frame: frames.body.stackFrames[0].id, text: event.body.text }
}

async function session() {
  await client.start()
  const begun = await client.initializeRequest()
  told.back = begun.body.supportsStepBack
  const args = ["--block", "64", "--arg", "arange:f32:64"]
  const ready = client.waitForEvent("initialized")
  await client.launchRequest({ program: kernel, args })
  await ready
  const lines = await client.setBreakpointsRequest({ source: { path: kernel }, breakpoints: [{ line: 17 }, { line: 999 }] })
  told.verified = lines.body.breakpoints.map((each) => each.verified)
  await client.setExceptionBreakpointsRequest({ filters: ["problems"] })
  told.first = await stop(client.configurationDoneRequest())
  told.threads = (await client.threadsRequest()).body.threads.map((each) => each.name)
  const scopes = await client.scopesRequest({ frameId: told.first.frame })
  told.scopes = scopes.body.scopes.map((each) => each.name)
  const variables = await client.variablesRequest({ variablesReference: scopes.body.scopes[0].variablesReference })
  const register = variables.body.variables.find((each) => each.name === "%f2")
  const lanes = await client.variablesRequest({ variablesReference: register.variablesReference })
  told.lanes = lanes.body.variables.map((each) => Number(each.value))
  const value = await client.evaluateRequest({ expression: "%f2[3] * 2", frameId: told.first.frame })
  told.value = value.body.result
  told.over = await stop(client.nextRequest({ threadId: 1 }))
  told.stepBack = await stop(client.stepBackRequest({ threadId: 1 }))
  told.second = await stop(client.continueRequest({ threadId: 1 }))
  told.problem = await stop(client.continueRequest({ threadId: 1 }))
  told.about = (await client.send("exceptionInfo", { threadId: 1 })).body.exceptionId
  told.reverse = await stop(client.reverseContinueRequest({ threadId: 1 }))
  const memory = await client.send("readMemory", { memoryReference: "tile:0x0", count: 4 })
  told.memory = memory.body.data
  await client.disconnectRequest()
  client.stopAdapter()
}

session().then(
  () => { console.log(JSON.stringify(told)); process.exit(0) },
  (why) => { console.error(why); process.exit(1) },
)
