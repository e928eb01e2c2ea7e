// Ask skillbus through RabbitMQ and print the first lines of the reply.
//
//   npm ci && node ask.js "which e-bikes get a fresh battery first?"
//
// The broker is that of AMQP_URL.
import { randomUUID } from "node:crypto";
import amqp from "amqplib";

if (process.argv.length !== 3) {
  console.error('usage: node ask.js "TASK"');
  process.exit(1);
}
const connection = await amqp.connect(process.env.AMQP_URL ?? "amqp://guest:guest@127.0.0.1:5672/%2F");
const channel = await connection.createConfirmChannel();
const id = randomUUID();
// A queue of this program's own, gone with its connection.
const { queue } = await channel.assertQueue(`skillbus.replies.${id}`, { exclusive: true });
const replied = new Promise((resolve, reject) => {
  channel.consume(queue, (message) => resolve(JSON.parse(message.content)), { noAck: true });
  const late = new Error("no reply within a minute: is `skillbus consume` running?");
  setTimeout(() => reject(late), 60_000).unref();
});
const event = {
  specversion: "1.0",
  id,
  source: "examples/ask.js",
  type: "skillbus.query.asked.v1",
  data: { task: process.argv[2], budget: 2000, top: 3 },
};
channel.sendToQueue("skillbus.events", Buffer.from(JSON.stringify(event)), {
  contentType: "application/cloudevents+json",
  persistent: true,
  replyTo: queue,
  correlationId: "1",
  mandatory: true,
});
await channel.waitForConfirms();
const { type, data } = await replied;
await connection.close();
console.log(type);
if (type !== "skillbus.query.answered.v1") {
  console.error(data.reason);
  process.exit(1);
}
console.log(`${data.status}, ${data.tokens} of ${data.budget} tokens`);
for (const skill of data.skills) {
  console.log(`- ${skill.skill_id}: ${skill.description}`);
}
